/* The table of filters. Filters over sequences are in jinja_filters_seq.c, the others in jinja_filters.c. */
#ifndef VB_TEXT_JINJA_FILTERS_H
#define VB_TEXT_JINJA_FILTERS_H
#include "text/jinja_int.h"

typedef bool jfilter_fn(jr *r, jv in, const jargs *a, jv *out);

jfilter_fn vb__jf_batch, vb__jf_dictsort, vb__jf_first, vb__jf_groupby, vb__jf_items, vb__jf_join,
    vb__jf_last, vb__jf_length, vb__jf_list, vb__jf_map, vb__jf_max, vb__jf_min, vb__jf_reject,
    vb__jf_rejectattr, vb__jf_reverse, vb__jf_select, vb__jf_selectattr, vb__jf_slice, vb__jf_sort,
    vb__jf_sum, vb__jf_unique;

#endif
