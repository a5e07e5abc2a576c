"""Tables, files and journals made into one."""
