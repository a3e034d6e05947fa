"""What tests are made with: builders of test objects by domain, a clock that obeys, recorded cases, kept results."""
