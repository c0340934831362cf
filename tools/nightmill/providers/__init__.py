"""Who answers: one file per kind of provider."""
