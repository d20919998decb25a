// SPDX-License-Identifier: Apache-2.0

// Package maintenance reads what a site's nodes do over time, when, and which of them:
// the documents NodeMaintenance, MaintenanceWindow, NodeSet and Rollout.
//
// A document of its own kind stands beside the Site, in the same file or in one that
// the Site includes. Names are unique among the documents of a kind. Everything is
// resolved when a site is published: a node sees intervals of UTC and its own
// settings, neither rules nor names of other nodes.
package maintenance
