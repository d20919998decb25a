// SPDX-License-Identifier: Apache-2.0

package track

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec/refusal"
)

// either is one place with two credentials: the second ones are for where the first are refused,
// and for nothing else, or a place that does not answer would be waited for twice.
type either struct {
	first, second oci.Source
	why           error // there is no first, since its credentials cannot be read
}

// Denied reports whether credentials were refused, or asked for where there are none.
func Denied(err error) bool {
	var status *pull.StatusError
	return errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden)
}

func eitherOf[T any](e *either, ask func(oci.Source) (T, error)) (T, error) {
	why := e.why
	if why == nil {
		got, err := ask(e.first)
		if err == nil || !Denied(err) {
			return got, err
		}
		why = err
	}
	got, err := ask(e.second)
	if err != nil && Denied(err) {
		err = errors.Join(fmt.Errorf("by the credentials that came as a secret: %w", why), err)
	}
	return got, err
}

// Manifest implements oci.Source.
func (e *either) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	return eitherOf(e, func(s oci.Source) (oci.Response, error) { return s.Manifest(ctx, repo, reference, etag) })
}

// Blob implements oci.Source.
func (e *either) Blob(ctx context.Context, repo string, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	return eitherOf(e, func(s oci.Source) (io.ReadCloser, error) { return s.Blob(ctx, repo, d, offset) })
}

// Ranges implements oci.Ranger.
func (e *either) Ranges(ctx context.Context, repo string, d oci.Descriptor, spans []oci.Span) (io.ReadCloser, error) {
	return eitherOf(e, func(s oci.Source) (io.ReadCloser, error) {
		ranger, ok := s.(oci.Ranger)
		if !ok {
			return nil, refusal.New(refusal.Range, "%s: this place serves no parts", d.Digest)
		}
		return ranger.Ranges(ctx, repo, d, spans)
	})
}
