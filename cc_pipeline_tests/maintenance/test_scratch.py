import time

from cc_pipeline_tests.world import *


def test_x(bucket, tmp_path):
    t=time.time()
    w = harvested(bucket[0], tmp_path/"home")
    print("harvest", time.time()-t); t=time.time()
    r = extract(w, "example.com", "example.org")
    r = extract(w, "host:www.example.com")
    print("extract", time.time()-t, [x.rows for x in r]); t=time.time()
    publish(w)
    print("publish", time.time()-t); t=time.time()
    for n in w.lake.specs: print(n, w.lake.version(n), w.lake.pin(n).rows, len(w.lake.pin(n).files))
