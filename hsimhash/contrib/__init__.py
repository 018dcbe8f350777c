"""Add-ons for other programs: `scrapy`."""
