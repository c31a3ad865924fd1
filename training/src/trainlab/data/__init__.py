"""What a phase is trained and scored on, up to tokenization: rows of questions and answers, running text, hub rows.

chat_rows.py reads JSON Lines, verse_forms.py knows the verse forms, corpus.py finds running text, text_files.py
reads its files, corpus.py splits it, pack.py makes blocks of tokens; hub/ fetches hub rows, prepare/ cleans and
tokenizes text in advance, parquet.py writes the image's copies of the data sets.
"""
