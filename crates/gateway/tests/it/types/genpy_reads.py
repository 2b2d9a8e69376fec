# SPDX-License-Identifier: Apache-2.0
"""Reads lines of JSON [type, definition] from standard input. For each, prints the md5 of the class
that genpy makes of the definition, as rostopic and rosbag do, or the error."""
import json
import os
import sys
import tempfile

# genpy writes its modules there.
tempfile.tempdir = sys.argv[1]
import genpy.dynamic

for line in sys.stdin:
    name, text = json.loads(line)
    try:
        made = genpy.dynamic.generate_dynamic(name, text)[name]
        made().serialize(open(os.devnull, "wb"))
        print(json.dumps(made._md5sum))
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"))
