from cbm_cli.cli import main

main()
