// SPDX-License-Identifier: Apache-2.0

// Package contract tests that "valid" means one thing: what spec/site accepts,
// nodes and the builder accept too.
//
// It carries every value of the examples, of the YAML blocks in docs, and of the
// rule tables in spec/site/testdata/rules through the whole chain: parse, compile,
// sign, trust.Accept, the item's Check in a fake root, and builder.Check for what
// is baked into a layer.
//
// A second table has a row for each way in which a Divingbell operator could be
// surprised by an unchanged values file, run where it acts. The package holds
// nothing but the two tests.
package contract
