// SPDX-License-Identifier: Apache-2.0

package registry

// CapLists sets how many tags, in how many pages, of how many bytes each, a list of tags may
// have, for tests in which one is longer.
func (r *Registry) CapLists(tags, pages int, page int64) {
	*r.place.(*server).lists = listCaps{tags, pages, page}
}

// ListCaps are the numbers that an open registry has.
func (r *Registry) ListCaps() (tags, pages int, page int64) {
	l := r.place.(*server).lists
	return l.tags, l.pages, l.page
}
