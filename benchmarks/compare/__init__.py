"""The *Compare* page: the same questions to all that memoizes a wrapper factory: ``make compare``.

Each cell is what a probe answered when it ran: :mod:`probes` holds them, :mod:`contestants` what
they are run on, :mod:`environments` the interpreters, and :mod:`page` the Markdown.
"""
