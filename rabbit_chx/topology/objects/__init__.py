"""The objects of a vhost, their fields, and the changes between two versions of one."""
