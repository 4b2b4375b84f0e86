"""The command line. `app` lists the commands; each has a module of its own, imported when it is called."""
