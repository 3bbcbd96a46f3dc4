"""Wing: what leaves a home, with proof: deliveries of records (``copy``), exports, WACZ, data sets without near copies,
one page (``get``)."""
