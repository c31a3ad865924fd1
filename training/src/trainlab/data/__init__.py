"""What a phase is trained and scored on, up to tokenization: rows of questions and answers, running text, hub rows.

table_files.py and text_files.py read files of all kinds; row_files.py checks lines of questions and answers, chat_rows.py draws rows of them,
answer_forms.py and verse_forms.py know what answers consist of; corpus.py finds and splits running text, pack.py makes blocks of
tokens; hub_download.py and table_rows.py fetch from a hub, prepare/ cleans and tokenizes text in advance.
"""
