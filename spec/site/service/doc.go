// SPDX-License-Identifier: Apache-2.0

// Package service reads which services of a site take their files from git: the
// documents of kind NodeService, and the lock beside the site.
//
// A document says where files come from and where nodes have them. What a branch
// means today is not in it: the [Lock] names a commit for each service, and the
// image that was made of it, so that the same site gives the same overlays until
// somebody updates the lock. Both are only read here, and nothing is asked.
package service
