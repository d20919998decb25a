// SPDX-License-Identifier: Apache-2.0

// Package interop proves that caisson's signatures and cosign's are the same
// thing: what one signs the other verifies, in both directions, with cosign v2
// and v3 as they are, a real registry and no network beyond 127.0.0.1.
//
// cosign.sh builds the two programs; without them the tests are skipped, unless
// CAISSON_REQUIRE names "cosign". `make test-interop` does both.
package interop
