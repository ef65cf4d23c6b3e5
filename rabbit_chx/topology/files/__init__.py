"""Files that say a topology: TOML, RabbitMQ's definitions, manifests for Kubernetes."""
