"""The command line. `app` lists the commands; what the other modules here do not run, other rooms do."""
