"""The command line. `app` lists the commands; long ones have a module here, the others call other rooms."""
