"""HTML pages: the tree, links and addresses, facts, texts and languages."""
