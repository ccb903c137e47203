"""`thera site`: the page as a folder of files, with the network running in the browser."""
