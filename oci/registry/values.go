// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/caisson-os/caisson/oci"
)

// blob is our descriptor in the library's clothes.
type blob struct {
	hash v1.Hash
	d    oci.Descriptor
	open Opener
}

func (b blob) Digest() (v1.Hash, error)             { return b.hash, nil }
func (b blob) DiffID() (v1.Hash, error)             { return b.hash, nil }
func (b blob) Compressed() (io.ReadCloser, error)   { return b.open() }
func (b blob) Uncompressed() (io.ReadCloser, error) { return b.open() }
func (b blob) Size() (int64, error)                 { return b.d.Size, nil }
func (b blob) MediaType() (types.MediaType, error)  { return types.MediaType(b.d.MediaType), nil }

// rawManifest is pushed byte for byte.
type rawManifest struct {
	raw       []byte
	mediaType types.MediaType
}

func (m rawManifest) RawManifest() ([]byte, error)        { return m.raw, nil }
func (m rawManifest) MediaType() (types.MediaType, error) { return m.mediaType, nil }
