module trainlab.local/resolves

go 1.21
