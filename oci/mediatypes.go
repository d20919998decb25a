// SPDX-License-Identifier: Apache-2.0

package oci

import "github.com/caisson-os/caisson/internal/mediatype"

// Media types of the OCI specifications.
const (
	MediaTypeManifest = "application/vnd.oci.image.manifest.v1+json"
	MediaTypeIndex    = "application/vnd.oci.image.index.v1+json"
	MediaTypeEmpty    = "application/vnd.oci.empty.v1+json"
)

// Types of caisson's artifacts and of the blobs in them.
const (
	TypeLayer       = "application/vnd.caisson.layer.v1+json"        // artifactType of a system layer
	TypeOverlay     = "application/vnd.caisson.overlay.v1+json"      // artifactType of a node's overlay, and of its document
	TypeFleet       = "application/vnd.caisson.fleet.v1+json"        // artifactType of fleet:current, and of its document
	TypeKeys        = "application/vnd.caisson.keys.v1+json"         // artifactType of a version of fleet:keys, and of its document
	TypeRescue      = "application/vnd.caisson.rescue.v1+json"       // artifactType of what lets an operator in, and of its document
	TypeRollout     = "application/vnd.caisson.rollout.v1+json"      // artifactType of a rollout's plan, and of its document
	TypeFleetIndex  = "application/vnd.caisson.fleet-index.v1+json"  // artifactType of fleet:index, and of its document
	TypeFleetShard  = "application/vnd.caisson.fleet-shard.v1+json"  // artifactType of a part of fleet:index, and of its document
	TypeGone        = "application/vnd.caisson.gone.v1+json"         // artifactType of what a removed tag leads to
	TypeLayerConfig = "application/vnd.caisson.layer.config.v1+json" // a layer's description, spec.Layer
	TypeLedger      = "application/vnd.caisson.accounts.v1+json"     // artifactType of a fleet's account ledger, and of its document
	// what a node mounts of a repository of git; its config has this type, too
	TypeService   = "application/vnd.caisson.service.v1+json"
	TypeLoader    = "application/vnd.caisson.loader.v1+json"    // artifactType of what disks start
	TypeReport    = "application/vnd.caisson.report.v1+json"    // artifactType of a node's signed report, and of its document
	TypeRehearsal = "application/vnd.caisson.rehearsal.v1+json" // artifactType of the signed statement of a rehearsal
	TypeKernel    = mediatype.Kernel
	TypeInitrd    = mediatype.Initrd
	TypeUEFI      = mediatype.UEFI
	TypeUKI       = mediatype.UKI
	TypeESP       = mediatype.ESP
	TypeSquashfs  = mediatype.Squashfs
	TypeChunks    = mediatype.Chunks
	TypeRecipe    = "application/vnd.caisson.recipe.v1+json"        // what a layer was made of, spec.Recipe
	TypeBundle    = "application/vnd.dev.sigstore.bundle.v0.3+json" // a sigstore bundle
)

// Repositories below a registry's prefix.
const (
	RepoLayer   = "layer"
	RepoNode    = "node"
	RepoFleet   = "fleet"
	RepoService = "service"
	RepoReport  = "report"
	RepoLoader  = "loader"
	RepoRescue  = "rescue"
)

// Annotations. They are hints for people and for selection, never trusted.
const (
	AnnotationVariant = "dev.caisson.variant"               // on the descriptors of a layer index
	AnnotationGone    = "dev.caisson.gone"                  // the tag that was removed, see TypeGone
	AnnotationRefName = "org.opencontainers.image.ref.name" // in a layout's index.json
)

// Caps on what is read from outside.
const (
	MaxManifest = 1 << 20   // bytes of a manifest or an index
	MaxOverlay  = 2 << 20   // bytes of an overlay
	MaxBundle   = 32 << 10  // bytes of a signature bundle
	MaxAttested = 4 << 20   // bytes of an attestation's bundle: provenance names every package
	MaxBundles  = 16        // bundles beside one document
	MaxFleet    = 64 << 10  // bytes of fleet:current's document
	MaxKeys     = 64 << 10  // bytes of the document of a version of fleet:keys
	MaxRescue   = 32 << 10  // bytes of the document of a statement that lets an operator into a node
	MaxConfig   = 16 << 20  // bytes of a layer's description
	MaxInline   = 1 << 20   // bytes of a manifest that holds its blobs inline; not above MaxManifest
	MaxBlob     = 64 << 30  // bytes of an image
	MaxLayout   = 512 << 20 // bytes of a layout's index.json: a fleet of a million nodes has some 270 MB
	maxEntries  = 4096      // descriptors in a manifest or an index
	maxValues   = 64 << 10  // keys and values in one: 4096 descriptors with seven each, and annotations
)
