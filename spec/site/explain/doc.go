// SPDX-License-Identifier: Apache-2.0

// Package explain tells for every value of a node's configuration where it was
// written: in which file and line, by which override, over what; and which values
// hold although nobody wrote them.
//
// It reads the same targets that compiling reads, before they are compiled, so
// that people find their own words in it, spelled as sysctl(8) and ethtool(8)
// spell them. People get a tree, tools the [Explanation] as JSON. It decides
// nothing.
package explain
