"""The words of the column ``reason`` in ``records``, as they are published: a change breaks the queries of others."""

REASONS = frozenset(
    # the source never gave the range
    "not_found range_not_satisfiable forbidden throttled server_error client_error redirected unauthorized unreachable "
    "proxy no_such_host login_page "
    "timeout connection_reset short_body long_body whole_object error_document wrong_range changed_object empty_body "
    # the source had refused so often that it was not asked
    "refused "
    # the bytes are not the record
    "not_gzip gzip_truncated gzip_corrupt too_large not_a_record length_mismatch wrong_target wrong_type "
    # the index row names no bytes that could be asked for
    "bad_plan".split()
)
