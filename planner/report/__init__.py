"""The weekly cost-down report: facts of a week to a document, a document to Markdown and HTML, in English and Chinese."""
