#!/bin/sh
# Make every picture of docs/images from results, with cbm commands alone.
#
#   docs/make_images.sh [RESULTS]
#
# RESULTS (default: results/) holds the experiment quickstart of experiments.yaml, those of docs/gallery.md, and
# digits of docs/course; a picture whose experiment is missing is left as it is.
results=$(realpath "${1:-results/}")
images=$(dirname "$0")/images
cbm=${CBM:-cbm}

$cbm plot "$results" curves quickstart -o "$images/quickstart.png"

# The page of results, as Chromium shows it
page=$(mktemp --suffix .html)
if command -v chromium > /dev/null && $cbm report "$results" quickstart -o "$page"; then
    chromium --headless --no-sandbox --hide-scrollbars --window-size=1200,1500 \
        --screenshot="$images/report.png" "file://$page"
fi
rm -f "$page"

# The pictures of these pages are drawn by the commands beside them.
cd "$(dirname "$0")" && cat course/figure-and-table.md gallery.md science/centering.md science/enhanced-gradient.md |
    sed -e ':join' -e '/\\$/ { N; s/ *\\\n */ /; b join' -e '}' |
    grep '^cbm plot .* -o [a-z-]*\.png$' | sort -u |
    sed "s|^cbm plot results |cbm plot $results |; s|^cbm |$cbm |; s| -o | -o images/|" | sh
