#!/bin/sh
# Reports the size of a folder. Arguments arrive as JSON on stdin; the result goes to stdout.
set -eu
folder=$(sed -n 's/.*"folder" *: *"\([^"]*\)".*/\1/p')
kilobytes=$(du -sk -- "${folder:-.}" | cut -f1)
printf '{"folder": "%s", "kilobytes": %s}\n' "${folder:-.}" "$kilobytes"
