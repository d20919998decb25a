// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"io"
	"io/fs"
	"strings"
	"time"
)

// siteText is a file system with one file, whatever name is asked for: the form in
// which a site reads its input.
type siteText string

// Open implements fs.FS.
func (t siteText) Open(name string) (fs.File, error) {
	return &openText{name: name, size: int64(len(t)), Reader: strings.NewReader(string(t))}, nil
}

// openText is the open file and its own description.
type openText struct {
	name string
	size int64
	io.Reader
}

func (f *openText) Stat() (fs.FileInfo, error) { return f, nil }
func (f *openText) Close() error               { return nil }
func (f *openText) Name() string               { return f.name }
func (f *openText) Size() int64                { return f.size }
func (f *openText) Mode() fs.FileMode          { return 0o444 }
func (f *openText) ModTime() time.Time         { return time.Time{} }
func (f *openText) IsDir() bool                { return false }
func (f *openText) Sys() any                   { return nil }
