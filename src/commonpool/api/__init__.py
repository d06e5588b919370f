"""The admin API: what operators, commands and the console ask of a running product.

`wire` is its vocabulary, `operations` what it needs of the running product, then one module per noun, each with its
endpoints; `http` turns those into a Starlette application, `openapi` into their description, `server` serves both.
"""
