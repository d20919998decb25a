// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"io"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// Loaders returns what fleet:current names as what disks of nodes start.
func (r *Reader) Loaders(ctx context.Context) ([]spec.Loader, error) {
	f, err := r.Look(ctx)
	if err != nil {
		return nil, err
	}
	return f.v.Loaders, nil
}

// Loaders returns what fleet:current named as what disks of nodes start, when it was read.
func (f *Fleet) Loaders() []spec.Loader { return f.v.Loaders }

// Loader returns the program of one of them.
func (f *Fleet) Loader(ctx context.Context, l spec.Loader) ([]byte, error) {
	if l.Image.Size < 0 || l.Image.Size > maxLoader {
		return nil, fmt.Errorf("%d bytes are not those of a loader", l.Image.Size)
	}
	body, _, err := f.r.Registry.Blob(ctx, oci.RepoLoader, l.Image.Digest)
	if err != nil {
		return nil, err
	}
	defer body.Close() // only read
	data, err := io.ReadAll(io.LimitReader(body, l.Image.Size+1))
	if err == nil && (int64(len(data)) != l.Image.Size || digest.Of(data) != l.Image.Digest) {
		err = fmt.Errorf("the registry gives another program than loader %s", l.Image.Digest)
	}
	return data, err
}

// maxLoader is more bytes than any loader has: it is read into memory.
const maxLoader = 1 << 30
