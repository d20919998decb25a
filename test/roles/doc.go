// SPDX-License-Identifier: Apache-2.0

// Package roles is a table of packages and what they must do on a node: a container runs, a route
// is learned, an address moves, a database answers. Its test builds and boots each row by
// 'caisson try'. What takes two nodes is in package vm.
package roles
