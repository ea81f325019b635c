//! Finds the range and talks to its server: tables, batches, retries, admin; holds the seams RangeService and AdminService
