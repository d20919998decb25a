// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Serve is the process: it reads a request, answers on out, and says on said how
// it went. The error is that of saying so.
func Serve(ctx context.Context, in io.Reader, out, said io.Writer) error {
	o, err := serve(ctx, in, out)
	if err != nil {
		o = outcomeOf(err)
	}
	return json.NewEncoder(said).Encode(o)
}

func serve(ctx context.Context, in io.Reader, out io.Writer) (outcome, error) {
	var r request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return outcome{}, fmt.Errorf("read a request: %w", err)
	}
	if r.Post != nil {
		deliver, err := prepare(ctx, r) // reads what only root may
		if err == nil {
			err = confine()
		}
		if err == nil {
			err = deliver()
		}
		return outcome{}, err
	}
	src, err := track.Open(r.Bootstrap, r.Way) // reads what only root may
	if err != nil {
		return outcome{}, err
	}
	if err := confine(); err != nil {
		return outcome{}, err
	}
	if r.Blob != nil {
		body, err := r.open(ctx, src)
		if err != nil {
			return outcome{}, err
		}
		defer body.Close() // it was only read
		_, err = io.Copy(out, body)
		return outcome{}, err
	}
	resp, err := src.Manifest(ctx, r.Repo, r.Reference, r.ETag)
	if err != nil {
		return outcome{}, err
	}
	if !resp.NotModified {
		// What a manifest can do to a parser it does here first.
		if _, err := oci.ParseManifest(resp.Data); err != nil {
			return outcome{}, fmt.Errorf("%s:%s: %w", r.Repo, r.Reference, err)
		}
	}
	_, err = out.Write(resp.Data)
	return outcome{MediaType: resp.MediaType, ETag: resp.ETag, NotModified: resp.NotModified}, err
}

// open opens the blob, or parts of it.
func (r request) open(ctx context.Context, src oci.Source) (io.ReadCloser, error) {
	if r.Spans == nil {
		return src.Blob(ctx, r.Repo, *r.Blob, r.Offset)
	}
	ranger, ok := src.(oci.Ranger)
	if !ok {
		return nil, refusal.New(refusal.Range, "%s: this place serves no parts", r.Blob.Digest)
	}
	return ranger.Ranges(ctx, r.Repo, *r.Blob, r.Spans)
}
