// SPDX-License-Identifier: Apache-2.0

// Package templates tests that each template that comes with caisson does what
// docs/templates.md says: it is written into a site, published, and run as a node runs
// it, with programs of the test in the places of the layer's. The package holds
// nothing but the test.
package templates
