"""The admin API: what operators, commands and the console ask of a running product.

`wire` has its bodies, one module per noun; `operations` is what it needs of the running product. Then one module per
noun, each with its endpoints; `http` turns those into a Starlette application, `openapi` into their description,
`server` serves both.
"""
