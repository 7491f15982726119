#include <algorithm>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/class_scan/packed_rows.h"
#include "custom_ops/cuda/inverted_file.h"
#include "custom_ops/cuda/inverted_file_body.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace {

// The number of blocks. Further queries wait for a block.
constexpr int64_t kMostSearchBlocks = 2048;

SearchMemory MemoryFor(const InvertedFile& file, const ListSearch& search) {
  return {std::min(search.num_probes, file.num_lists), search.k};
}

int64_t NumBlocks(const ListSearch& search) {
  return std::min(search.batch, kMostSearchBlocks);
}

struct Parts {
  CodeRows means;
  CodeRows queries;
  char* blocks;
};

Parts CutParts(const InvertedFile& file, const ListSearch& search, Scratch* cutter) {
  const int64_t width = file.rows.width;
  const auto take = [&](int64_t num_rows, int64_t group_rows, int64_t most) -> CodeRows {
    int8_t* const codes = cutter->Take<int8_t>(RoundUp(num_rows, group_rows) * width);
    return {codes, cutter->Take<float>(num_rows), width, group_rows, static_cast<float>(most)};
  };
  const CodeRows means = take(file.num_lists, kMeansTogether, kMostOfRow);
  const CodeRows queries = take(search.batch, 1, MostOfQuery(width));
  return {means, queries,
          cutter->Take<char>(NumBlocks(search) * MemoryFor(file, search).Bytes())};
}

Status Code(const float* rows, int64_t num_rows, int64_t dim, const CodeRows& to,
            Stream stream) {
  return ForEachBlock(num_rows, kCodeThreads, CodeBody::kSharedBytes,
                      CodeBody{rows, num_rows, dim, to}, stream);
}

}  // namespace

int64_t SearchListsScratchBytes(const InvertedFile& file, const ListSearch& search) {
  Scratch counter(nullptr);
  CutParts(file, search, &counter);
  return counter.bytes();
}

Status SearchLists(const InvertedFile& file, const float* features, const ListSearch& search,
                   void* scratch, float* scores, int64_t* ids, Stream stream) {
  Scratch cutter(scratch);
  const Parts parts = CutParts(file, search, &cutter);
  Status status = Code(file.means, file.num_lists, search.dim, parts.means, stream);
  if (status == kOk) status = Code(features, search.batch, search.dim, parts.queries, stream);
  if (status != kOk) return status;
  const SearchMemory memory = MemoryFor(file, search);
  const SearchBody body{file,   parts.means,  parts.queries, search.batch,
                        memory, parts.blocks, scores,        ids};
  return ForEachBlock(NumBlocks(search), kSearchThreads,
                      static_cast<int>(SearchBody::SharedBytes(memory)), body, stream);
}

}  // namespace cuda
}  // namespace largeout
