"""Wing: what leaves a home, with proof: deliveries of records (``copy``), exports, WACZ, one page (``get``)."""
