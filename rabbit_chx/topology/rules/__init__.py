"""What a broker does with the objects of a vhost: arguments by release, policies, objects of plugins, where messages end."""
