// SPDX-License-Identifier: Apache-2.0

// Package perm sets owner and mode of paths that are baked into the layer, by
// chown(2) and chmod(2) on copies in the upper tree.
package perm
