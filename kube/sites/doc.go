// SPDX-License-Identifier: Apache-2.0

// Package sites reads each namespace as a fleet's site, and says in the objects' own status
// what is wrong with them, what publishing them would change, and what is published.
//
// It decides nothing about a site: package cluster of caisson reads objects as files, and
// the same functions compare, plan and publish that the command line calls. Without a
// signer it publishes nothing, and says the plan that somebody else may. Nothing that a
// status says is ever read back for a decision: a forged one changes what people
// see until the next look, and no node.
package sites
