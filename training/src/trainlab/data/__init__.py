"""What a phase is trained and judged on, until it is tokens: rows of questions and answers, running text, rows of a hub.

chat_rows.py reads JSON Lines, verse_forms.py knows the forms of verses, text_sources.py finds running text, text_files.py reads
its files, corpus.py splits it, pack.py makes blocks of tokens; hub/ fetches rows of a hub, prepare/ cleans and tokenizes text
beforehand, parquet.py writes the image's copies of the data sets.
"""
