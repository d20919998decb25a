// SPDX-License-Identifier: Apache-2.0

// Package machine compiles the settings of a node beside conf: the arguments of its
// kernel, its network, the authorities it trusts.
//
// They are the same on every node until an override says otherwise, just as the
// modules of conf are. Values are checked here and read nowhere else: files of
// certificates are named by the site and arrive as their text. Addresses follow
// systemd.network(5), kernel arguments bootparam(7).
package machine
