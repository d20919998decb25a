// SPDX-License-Identifier: Apache-2.0

// Package registry writes caisson's artifacts: to a registry server, or to a
// directory in the OCI image layout, which [Handler] serves like a registry.
//
// It is the big half of registry access, for the builder's machine. Pushing uses
// go-containerregistry; reading goes through oci/pull, by the same rules as
// on a node. The layout is written here, because a cut must leave the old or the
// new index and never a truncated blob under a good name: blobs first, fsync,
// then index.json by one rename. A tag is a descriptor whose ref.name is
// "repository:tag"; a referrer is a descriptor without a name.
//
// The package knows nothing of what it stores. What builds and publishes imports
// it, never the agent: a list of the agent's packages is held by a test.
package registry
