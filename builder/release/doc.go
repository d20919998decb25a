// SPDX-License-Identifier: Apache-2.0

// Package release is the system layer as an artifact: what a build makes is
// pushed, signed, described, found again, compared and removed here.
//
// A layer is one manifest for each variant of a site. An index lists the
// variants of one version; the tag "current" names the newest index. The
// manifest's config is the description ([spec.Layer]); signatures, SBOM and
// provenance are referrers of the manifest. [Read] and [Open] are the one place
// that walks from a reference to descriptions.
//
// It is not the builder, which makes the images and never sees a registry, and
// it is not a node, which reads layers through package trust. It knows nothing
// of overlays and fleets: that is fleet/publish. Programs that build and publish
// may import it, the agent never.
package release
