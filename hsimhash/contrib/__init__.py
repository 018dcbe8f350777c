"""Parts for other programs: `scrapy`."""
