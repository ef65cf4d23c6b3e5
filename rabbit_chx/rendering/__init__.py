"""Reports as text, JSON, Markdown, HTML or Prometheus metrics; progress of long operations."""
