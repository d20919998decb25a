// SPDX-License-Identifier: Apache-2.0

// Package maintenance reads when and where a site's nodes may be disturbed: the
// documents MaintenanceWindow and NodeSet.
//
// A document of its own kind stands beside the Site, in the same file or in one that
// the Site includes. Names are unique among the documents of a kind. Everything is
// resolved when a site is published: a node sees intervals of UTC and its own
// settings, neither rules nor names of other nodes.
package maintenance
