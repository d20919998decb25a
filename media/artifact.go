// SPDX-License-Identifier: Apache-2.0

package media

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// Push brings a loader into a registry as disks take it: the program, and a file system with
// it and a boot manager that a node copies into a partition of [espRoom] bytes. It returns
// what names both.
func (l *Loader) Push(ctx context.Context, r *registry.Registry) (spec.Loader, error) {
	esp, size, err := l.esp()
	if err != nil {
		return spec.Loader{}, err
	}
	defer os.Remove(esp.Name()) // the registry has it, or not
	defer esp.Close()           // only read
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(esp, 0, size)); err != nil {
		return spec.Loader{}, err
	}
	pushed := spec.Loader{Arch: l.Arch, Number: l.Number, Image: spec.Blob{Digest: digest.Of(l.Image), Size: int64(len(l.Image))}, ESP: spec.Blob{Digest: digest.From(sum), Size: size}}
	m := oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLoader, Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare()}
	for _, part := range []struct {
		kind, title string
		blob        spec.Blob
		open        registry.Opener
	}{
		{oci.TypeUKI, l.title(), pushed.Image, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(l.Image)), nil }},
		{oci.TypeESP, "esp", pushed.ESP, func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(esp, 0, size)), nil }},
	} {
		d := oci.Descriptor{MediaType: part.kind, Digest: part.blob.Digest, Size: part.blob.Size, Annotations: map[string]string{"org.opencontainers.image.title": part.title}}
		if err := r.PutBlob(ctx, oci.RepoLoader, d, part.open); err != nil {
			return pushed, fmt.Errorf("push the loader's %s: %w", part.title, err)
		}
		m.Layers = append(m.Layers, d)
	}
	if err := r.PutData(ctx, oci.RepoLoader, oci.Describe(oci.MediaTypeEmpty, oci.Empty)); err != nil {
		return pushed, fmt.Errorf("push the loader: %w", err)
	}
	raw := oci.Encode(m)
	if pushed.Manifest, err = r.PutManifest(ctx, oci.RepoLoader, oci.MediaTypeManifest, raw, release.KeepTag(oci.Digest(raw))); err != nil {
		return pushed, fmt.Errorf("push the loader: %w", err)
	}
	return pushed, nil
}

// esp writes the file system of a partition that a loader starts from into a temporary file,
// and returns how many bytes at its beginning are in use.
func (l *Loader) esp() (f *os.File, size int64, err error) {
	v := l.volume(uuid.MustParse(paths.ImageDisk), espRoom, l.chosen())
	if size, err = v.Used(); err != nil {
		return nil, 0, err
	}
	if f, err = os.CreateTemp("", "caisson-esp-"); err != nil {
		return nil, 0, err
	}
	if err := errors.Join(v.Write(f), f.Truncate(size)); err != nil {
		_ = f.Close()           // err says what failed
		_ = os.Remove(f.Name()) // likewise
		return nil, 0, fmt.Errorf("EFI system partition: %w", err)
	}
	return f, size, nil
}

// secret is how names of arguments look whose values are not for everybody.
var secret = regexp.MustCompile(`(?i)(passw|passphrase|secret|token|credential|api[._-]?key)`)

// Credentials lists what looks like one in a bootstrap and in the arguments of a loader's
// kernel, without its value: its holder can read it.
func Credentials(b spec.Bootstrap, args []string) (found []string) {
	for _, arg := range append(append([]string{}, b.KernelArgs...), args...) {
		if name, value, ok := strings.Cut(arg, "="); ok && value != "" && (secret.MatchString(name) || hasUser(value)) {
			found = append(found, "kernel argument "+name)
		}
	}
	for _, place := range []struct{ name, url string }{{"the proxy", b.Proxy}, {"the URL of reports", b.Hints}} {
		if hasUser(place.url) {
			found = append(found, "a password in "+place.name)
		}
	}
	return found
}

// hasUser reports whether a text is a URL with a user.
func hasUser(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.User != nil
}
