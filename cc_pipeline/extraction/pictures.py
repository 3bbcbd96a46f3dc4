def coverage_figures(workspace, crawl):
    return {}
def key_range_picture(table):
    return None
